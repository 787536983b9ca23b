# A broker that keeps its logs in /data:
#
#   docker build -t minibroker . && docker run --rm -p 9092:9092 -v minibroker:/data minibroker
#
# Settings are variables as in Kafka's image (KAFKA_NUM_PARTITIONS=3), or arguments of `minibroker serve`. It listens at
# every address and tells a client the one that the client came by; where hosts and containers reach it by different
# ones, name two listeners as docker-compose.yml does. tests/test_containers.py runs what stands here.

FROM python:3.13-slim AS build
COPY pyproject.toml hatch_build.py README.md LICENSE /source/
COPY minibroker /source/minibroker
RUN pip wheel --no-cache-dir --wheel-dir /wheels '/source[tls]'

FROM python:3.13-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels 'minibroker[tls]' \
    && useradd --system --uid 1000 --no-create-home minibroker \
    && install --directory --owner minibroker /data
ENV KAFKA_LISTENERS=PLAINTEXT://0.0.0.0:9092
ENV KAFKA_LOG_DIRS=/data
USER minibroker
VOLUME /data
EXPOSE 9092
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=3 CMD ["minibroker", "health", "--quiet"]
ENTRYPOINT ["minibroker"]
CMD ["serve"]
