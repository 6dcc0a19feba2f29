"""Building a version in steps that survive the process: read, embed, publish, shard by shard."""
