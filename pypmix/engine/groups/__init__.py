"""Groups of processes as both engines see them: addresses, invitations, changes, leaders. No I/O, no clock."""
