//! Whether the pages of a list come to an end, though a service says that one follows. Pure.

/// Most pages that one request goes through. Those of uploads on Azure hold blobs that have none,
/// 5,000 each: half a billion of them.
pub const PAGES_MAX: u32 = 100_000;

/// The pages that were seen.
#[derive(Debug, Default)]
pub struct Progress {
    /// Where it began: who is given that to go on from would come here for ever.
    first: Option<String>,
    /// A token of before. It is another one each time that twice as many pages have been seen: so
    /// a circle of any length is met, and one token is all that is remembered.
    kept: Option<String>,
    pages: u32,
}

impl Progress {
    /// From the page of a token on, or from the first.
    pub fn from(token: Option<&str>) -> Self {
        Progress { first: token.map(str::to_string), ..Progress::default() }
    }

    /// Goes on to the page of a token.
    ///
    /// # Errors
    /// What the list does, of a token that was there before, and after too many pages.
    pub fn go_on(&mut self, token: &str) -> Result<(), &'static str> {
        if [&self.first, &self.kept].into_iter().any(|seen| seen.as_deref() == Some(token)) {
            return Err("comes to no end: the same page follows again");
        }
        self.pages += 1;
        if self.pages > PAGES_MAX {
            return Err("comes to no end: it has more than 100,000 pages");
        }
        if self.pages.is_power_of_two() {
            self.kept = Some(token.to_string());
        }
        Ok(())
    }
}
