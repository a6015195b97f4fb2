"""What an agent can be put into."""
