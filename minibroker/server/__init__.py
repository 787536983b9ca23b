"""The edge: sockets, frames in and out, limits, a small HTTP answer. What a request means is not known here."""
