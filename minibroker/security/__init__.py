"""Who may come in, and what each may do: nothing of it is imported by a broker that lets everybody."""
