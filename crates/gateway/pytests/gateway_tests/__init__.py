"""What clients that we did not write make of the gateway: lanes, ClickHouse, smokes, judges."""
