"""What may go wrong outside of the program: damaged files, full disks, killed processes."""
