"""Which parameters are one function?"""
