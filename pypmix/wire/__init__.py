"""The bytes between PMIx clients and servers: frames, handshake, codec, messages. No sockets."""
