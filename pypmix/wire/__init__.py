"""What the bytes between PMIx clients and servers mean: frames, handshake, codec, messages. No sockets, no state."""
