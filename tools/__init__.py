"""What the project does to itself: derive, check, set up."""
