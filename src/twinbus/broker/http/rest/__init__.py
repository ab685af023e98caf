"""The REST data plane: send, receive and settle messages over HTTP."""
