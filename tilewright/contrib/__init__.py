"""Small public helpers under their known names."""
