"""What must be shown of a checkpoint and its indexes: one experiment a file, each a table that anyone can make again.

A number comes with how far chance alone could have moved it, and a comparison is between the same questions.
"""
