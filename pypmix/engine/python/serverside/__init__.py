"""What a server does besides fences and modex."""
