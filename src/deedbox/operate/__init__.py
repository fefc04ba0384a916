"""What is shown and steered: views and verbs."""
