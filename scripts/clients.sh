#!/bin/bash
# usage: clients.sh rclone|s3fs|spark|recipes
# Installs a client that the gateway, or the Python package (recipes), is tried with and that does not share Python
# packages with the rest (kept in the cache, keyed by version), and prints its command: a program, or the Python that has it.
. "$(dirname "$0")/lib.sh"

# in_venv NAME PACKAGE...: an environment of its own; prints its Python.
in_venv() {
  local dir="$CACHE/$1"
  shift
  if [ ! -x "$dir/bin/python" ]; then
    say "installing $* (once; kept in $dir)"
    rm -rf "$dir.part"
    need_python
    python3 -m venv "$dir.part"
    "$dir.part/bin/python" -m pip install -q "$@" >&2
    mv -T "$dir.part" "$dir"
  fi
  echo "$dir/bin/python"
}

need_cache
exec 8>"$CACHE/.clients-${1:-}.lock"
lock 8 "${1:-}"
# Hadoop's S3A beside Spark, with the parts of AWS's SDK that it uses and not the bundle of all of
# them, which is forty times as large. Prints Python and the folder of the jars.
spark() {
  local spark=4.3.0 hadoop=3.5.0 sdk=2.35.4 dir="$CACHE/s3a-3.5.0"
  need java default-jre-headless
  if [ ! -d "$dir" ]; then
    need mvn maven
    say "fetching hadoop-aws $hadoop (once; kept in $dir)"
    rm -rf "$dir.part"
    mkdir -p "$dir.part"
    cat > "$dir.part/pom.xml" <<XML
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>s3a</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.hadoop</groupId><artifactId>hadoop-aws</artifactId><version>$hadoop</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
    <dependency><groupId>software.amazon.awssdk</groupId><artifactId>s3</artifactId><version>$sdk</version></dependency>
    <dependency><groupId>software.amazon.awssdk</groupId><artifactId>s3-transfer-manager</artifactId><version>$sdk</version></dependency>
    <dependency><groupId>software.amazon.awssdk</groupId><artifactId>sts</artifactId><version>$sdk</version></dependency>
    <dependency><groupId>software.amazon.s3.analyticsaccelerator</groupId><artifactId>analyticsaccelerator-s3</artifactId><version>1.3.1</version></dependency>
  </dependencies>
</project>
XML
    mvn -q -B -ntp -f "$dir.part/pom.xml" dependency:copy-dependencies \
      -DoutputDirectory=jars -DincludeScope=runtime >&2
    mv -T "$dir.part" "$dir"
  fi
  in_venv "spark-$spark" "pyspark==$spark"
  echo "$dir/jars"
}

case "${1:-}" in
  rclone) need rclone rclone; command -v rclone ;;
  s3fs) in_venv s3fs-2026.9.0 s3fs==2026.9.0 ;;
  spark) spark ;;
  # dbt-core 1.11 and later fetch a parser from elsewhere than PyPI; ibis 12.0 cannot read from DuckDB 2.0.
  recipes)
    in_venv recipes-1 duckdb==1.5.5 'ibis-framework[duckdb]==12.0.0' duckdb-engine==0.17.0 SQLAlchemy==2.1.9 \
      dbt-duckdb==1.11.1 dbt-core==1.10.23 dbt-adapters==1.24.5 dbt-common==1.39.0
    ;;
  *) die "usage: $0 rclone|s3fs|spark|recipes" ;;
esac
