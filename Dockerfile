# The project with its dependencies: docker build -t roberta-small . && docker run --rm -it roberta-small
# CPU only by default; for a GPU: --build-arg TORCH=torch==2.13.0, and docker run --gpus all.
FROM python:3.13-slim-bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ git make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /project
ARG TORCH=https://download.pytorch.org/whl/cpu
COPY . .
RUN make install TORCH="$TORCH" && rm -rf /root/.cache/pip
ENV PATH=/project/.venv/bin:$PATH
CMD ["bash"]
