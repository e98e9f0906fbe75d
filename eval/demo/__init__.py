"""A page in the browser that classifies and explains the text that one types."""
