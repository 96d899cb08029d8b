"""What may go wrong outside of the program: interruptions, full disks, killed processes."""
