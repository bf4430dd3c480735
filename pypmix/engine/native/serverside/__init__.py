"""What a native server takes from its library and gives to it: upcalls, job info, and the layout of the module."""
