# Openbook with its default checkpoint and the two demo indexes, ready to answer.
#
#   docker build -t openbook .
#   docker run --rm -p 8000:8000 openbook
#
# On Linux, PyPI's torch carries several gigabytes of CUDA. For the build without it:
#   docker build --build-arg PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu -t openbook .
FROM python:3.11-slim

ARG PIP_EXTRA_INDEX_URL=
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HF_HOME=/tmp/huggingface PATH=/opt/venv/bin:$PATH
WORKDIR /srv/openbook

# What changes rarely comes first: the dependencies make up nearly all of the image.
COPY pyproject.toml constraints.txt ./
COPY service/__init__.py service/
RUN touch README.md LICENSE && python3 -m venv /opt/venv \
 && pip install --no-cache-dir --disable-pip-version-check --quiet -c constraints.txt '.[mini]' \
 && pip uninstall --quiet --yes openbook

COPY README.md LICENSE ./
COPY service service
RUN pip install --no-cache-dir --disable-pip-version-check --quiet --no-deps . && rm -rf build service *.egg-info

# The service writes one thing: CURRENT, when its index is swapped.
RUN useradd --system --no-create-home openbook \
 && openbook index build wiki-2016 && openbook index build wiki-2018 \
 && chown -R openbook indexes

COPY checkpoints checkpoints
USER openbook

ENV OPENBOOK_HOST=0.0.0.0 OPENBOOK_PORT=8000
EXPOSE 8000
VOLUME /srv/openbook/indexes
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ[\"OPENBOOK_PORT\"]}/readyz', timeout=4)"]
CMD ["openbook", "serve"]
