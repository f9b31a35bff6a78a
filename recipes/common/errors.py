"""The one exception that a user is meant to see."""


class RecipeError(Exception):
    """Something that the user can mend: its text is one sentence naming file, line or flag, and the mend."""
