//! `penstock doctor`: prints what was found, one line for each look, with the line of the config
//! file that it is about, and the cure below.
//!
//! Exits with 0 where nothing hinders serving, else with the code of the first problem's kind.

use crate::args::Serve;
use crate::output::shown;
use crate::report::exit_code;
use crate::settings::Resolved;
use penstock_base::{Kind, Result, Settings};
use penstock_gateway::{Config, Finding, Level, Lines, examine};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::SystemTime;

/// Looks at everything and prints it.
///
/// # Errors
/// `Invalid` for flags and variables that cannot be; what is wrong beyond them is a finding.
pub async fn run(serve: Serve, config: Config, settings: Resolved<Settings>) -> Result<ExitCode> {
    let lines = config.lines.clone();
    let options = crate::serve::options(&serve, config, settings)?;
    let findings = examine(&options, SystemTime::now).await;
    crate::output::print(&page(&findings, &lines))?;
    let problem = findings.iter().find(|finding| finding.level == Level::Problem);
    let code = problem.map(|finding| exit_code(finding.kind.unwrap_or(Kind::Invalid)));
    Ok(code.map_or(ExitCode::SUCCESS, ExitCode::from))
}

fn page(findings: &[Finding], lines: &Lines) -> String {
    let mut page = String::new();
    for finding in findings {
        let level = match finding.level {
            Level::Good => "ok",
            Level::Warning => "warning",
            Level::Problem => "problem",
        };
        // What back ends and the system say, and names of their containers, stand in all three.
        let place = lines.place(finding).map_or(String::new(), |it| format!("{}: ", shown(&it)));
        let (subject, what) = (shown(&finding.subject), shown(&finding.what));
        let others = lines.others(finding).iter().map(usize::to_string).collect::<Vec<_>>();
        let others = match others.len() {
            0 => String::new(),
            1 => format!(" (and line {})", others[0]),
            _ => format!(" (and lines {})", others.join(", ")),
        };
        let _ = writeln!(page, "{level:<8} {place}{subject}: {what}{others}");
        if !finding.cure.is_empty() {
            let _ = writeln!(page, "         -> {}", shown(&finding.cure));
        }
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (problems, warnings) = (count(Level::Problem), count(Level::Warning));
    let _ = writeln!(page, "{problems} problems, {warnings} warnings");
    page
}
