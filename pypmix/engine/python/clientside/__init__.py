"""The client's side of operations that not every rank uses; each module is imported by the first that it serves."""
