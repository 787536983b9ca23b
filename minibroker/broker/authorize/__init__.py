"""What each API asks for before it is carried out; nothing of it is imported by a broker that has no authorizer."""
