#!/bin/bash
# s3proxy, the S3 gateway on the JVM (Maven Central). Credentials test / test. Tuned as its users
# publish it: 1 GiB of heap, G1, many connections. What it stands before is PENSTOCK_BACK_END:
#   dir            a directory below DIR (the default)
#   azure=URL      Azure Blob Storage or an emulator, with the emulators' well-known account
#   s3=URL         an S3 server with the credentials test / test
NAME=s3proxy VERSION=4.0.0
. "$(dirname "$0")/lib.sh"

install_peer() {
  need java default-jre-headless
  local dir="$CACHE/s3proxy-$VERSION"
  [ -f "$dir/s3proxy.jar" ] && return 0
  need mvn maven
  say "fetching s3proxy $VERSION (once; kept in $dir)"
  rm -rf "$dir.part"
  mkdir -p "$dir.part"
  mvn -q -B -ntp dependency:copy -DoutputDirectory="$dir.part" \
    "-Dartifact=org.gaul:s3proxy:$VERSION:jar:jar-with-dependencies" >&2
  mv "$dir.part/s3proxy-$VERSION-jar-with-dependencies.jar" "$dir.part/s3proxy.jar"
  # Without a file of its own the log is at DEBUG, which costs most of the throughput.
  cat > "$dir.part/logback.xml" <<'XML'
<configuration>
  <appender name="STDERR" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target><encoder><pattern>%d %-5level %logger{30} %msg%n</pattern></encoder>
  </appender>
  <root level="warn"><appender-ref ref="STDERR"/></root>
</configuration>
XML
  mv -T "$dir.part" "$dir"
}
peer_command() { echo "$CACHE/s3proxy-$VERSION/s3proxy.jar"; }

back_end() {
  case "${PENSTOCK_BACK_END:-dir}" in
    dir)
      mkdir -p "$1/s3proxy-data"
      printf 'jclouds.%s\n' provider=filesystem-nio2 identity=local credential=local \
        "filesystem.basedir=$1/s3proxy-data" ;;
    azure=*)
      printf 'jclouds.%s\n' provider=azureblob-sdk "identity=$AZURE_ACCOUNT" \
        "credential=$AZURE_KEY" "endpoint=${PENSTOCK_BACK_END#azure=}" ;;
    s3=*)
      printf 'jclouds.%s\n' provider=aws-s3-sdk identity=test credential=test region=us-east-1 \
        "endpoint=${PENSTOCK_BACK_END#s3=}" ;;
    *) die "PENSTOCK_BACK_END is ${PENSTOCK_BACK_END}; it must be dir, azure=URL or s3=URL" ;;
  esac
}
serve() {
  {
    # Unknown headers: SDKs of today send checksums. Request size: clients sign bodies over HTTP.
    printf 's3proxy.%s\n' "endpoint=http://127.0.0.1:$2" authorization=aws-v2-or-v4 identity=test \
      credential=test ignore-unknown-headers=true v4-max-non-chunked-request-size=536870912
    back_end "$1"
  } > "$1/s3proxy.properties"
  exec java -Xmx1g -XX:+UseG1GC -Dhttp.maxConnections=200 -Dhttp.keepAlive=true \
    -Dlogback.configurationFile="$CACHE/s3proxy-$VERSION/logback.xml" \
    -jar "$(peer_command)" --properties "$1/s3proxy.properties"
}
peer_main "$@"
