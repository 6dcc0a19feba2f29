"""python -m service: the same as the command openbook."""

from service.cli.app import main

if __name__ == "__main__":
    main()
