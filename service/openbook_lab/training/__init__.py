"""Training: warm start, reading, distillation of the question encoder, joint training, a checkpoint folder.

`openbook_lab.training.run.run` goes through all of it; docs/training.md is the guide.
"""
