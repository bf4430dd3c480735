"""What the tests stand on: the machine's libraries and launchers, jobs of real processes, and their traces."""
