"""Are two networks the same function?"""
