//! Prints metrics in the text format of Prometheus (version 0.0.4). Pure.

use penstock_base::Histogram;
use penstock_base::metrics::GatewayMetric;
use std::fmt::Write as _;

/// A metric with its values.
#[derive(Clone, Debug)]
pub struct Family {
    pub metric: &'static GatewayMetric,
    samples: Vec<Sample>,
}

#[derive(Clone, Debug)]
enum Value {
    Number(f64),
    Histogram(Box<Histogram>),
}

/// One value with the values of its labels, in the order of the table.
#[derive(Clone, Debug)]
pub struct Sample {
    labels: Vec<String>,
    value: Value,
}

impl Family {
    pub fn new(metric: &'static GatewayMetric) -> Self {
        Family { metric, samples: Vec::new() }
    }

    /// A metric without labels.
    pub fn single(metric: &'static GatewayMetric, value: f64) -> Self {
        Family { metric, samples: vec![Sample::of([], value)] }
    }

    pub fn push(&mut self, sample: Sample) {
        debug_assert_eq!(sample.labels.len(), self.metric.labels.len(), "{}", self.metric.name);
        self.samples.push(sample);
    }
}

impl Sample {
    pub fn of<const N: usize>(labels: [&str; N], value: f64) -> Self {
        Sample { labels: labels.map(str::to_string).to_vec(), value: Value::Number(value) }
    }

    pub fn histogram<const N: usize>(labels: [&str; N], histogram: &Histogram) -> Self {
        let value = Value::Histogram(Box::new(histogram.clone()));
        Sample { labels: labels.map(str::to_string).to_vec(), value }
    }
}

/// The page.
pub fn render(families: &[Family]) -> String {
    let mut page = String::new();
    for family in families {
        let metric = family.metric;
        let _ = writeln!(page, "# HELP {} {}", metric.name, metric.doc);
        let _ = writeln!(page, "# TYPE {} {}", metric.name, metric.shape.name());
        for sample in &family.samples {
            write_sample(&mut page, metric, sample);
        }
    }
    page
}

fn write_sample(page: &mut String, metric: &GatewayMetric, sample: &Sample) {
    let pairs = metric.labels.iter().zip(&sample.labels);
    let labels: Vec<String> =
        pairs.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    let name = metric.name;
    match &sample.value {
        Value::Number(number) => {
            let _ = writeln!(page, "{name}{} {number}", braced(&labels, None));
        }
        Value::Histogram(histogram) => {
            for (bound, count) in histogram.cumulative() {
                let at = braced(&labels, Some(&bound.as_secs_f64().to_string()));
                let _ = writeln!(page, "{name}_bucket{at} {count}");
            }
            let (count, plain) = (histogram.count(), braced(&labels, None));
            let _ = writeln!(page, "{name}_bucket{} {count}", braced(&labels, Some("+Inf")));
            let _ = writeln!(page, "{name}_sum{plain} {}", histogram.sum().as_secs_f64());
            let _ = writeln!(page, "{name}_count{plain} {count}");
        }
    }
}

fn braced(labels: &[String], bound: Option<&str>) -> String {
    let bound = bound.map(|bound| format!("le=\"{bound}\""));
    let all: Vec<&str> = labels.iter().map(String::as_str).chain(bound.as_deref()).collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
