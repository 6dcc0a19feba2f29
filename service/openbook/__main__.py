"""python -m openbook: the same as the command openbook."""

from openbook.cli.app import main

if __name__ == "__main__":
    main()
