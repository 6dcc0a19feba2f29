"""Training: warm start, reading, distillation of the question encoder, joint training, a checkpoint folder.

Read recipe, data, examples, worlds, mixture and libraries (what is learnt), then stage and optimizer (how), then
reading, distillation, retrieval and joint (the stages), base and weights (where they begin and end), and run (all
together). docs/training.md is the guide.
"""
