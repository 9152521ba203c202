//! What is done to a store, and what has to hold of its answer and of the store afterwards.

use crate::bytes::Content;
use crate::dice::Dice;
use crate::plan::Answers;
use crate::world::World;
use penstock_base::{Error, Kind, Result};
use penstock_engine::{GetRequest, Known, Query, WriteCondition};
use penstock_engine::{Location, PutOptions};
use std::collections::BTreeMap;

/// What a store holds: contents by key.
pub type Held = BTreeMap<String, Content>;

/// Keys of all operations. Their endings decide how they are opened.
pub const KEYS: &[&str] = &[
    "d/a.parquet",
    "d/b.parquet",
    "d/c.csv",
    "d/d.bin",
    "d/e.csv.gz",
    "d/sub/f.parquet",
    "d/sub/g.bin",
    "e/h.csv",
    "e/i b.parquet",
    "e/j+k.bin",
    "top.bin",
];

#[derive(Clone, Debug)]
pub enum Operation {
    /// Offsets and lengths, each wanted within the object.
    Read {
        key: String,
        ranges: Vec<(u64, u64)>,
    },
    Get {
        key: String,
    },
    Stat {
        key: String,
    },
    Exists {
        key: String,
    },
    List {
        directory: &'static str,
    },
    Glob {
        pattern: &'static str,
    },
    Write {
        key: String,
        content: Content,
        piece: usize,
    },
    Put {
        key: String,
        content: Content,
        only_if_absent: bool,
    },
    Copy {
        from: String,
        to: String,
    },
    Rename {
        from: String,
        to: String,
    },
    Remove {
        keys: Vec<String>,
    },
}

impl Operation {
    pub fn draw(dice: &Dice, held: &Held, is_writable: bool) -> Self {
        let key = |dice: &Dice| dice.pick(KEYS).to_string();
        let present = |dice: &Dice| {
            let keys: Vec<&String> = held.keys().collect();
            if keys.is_empty() || dice.chance(0.05) {
                key(dice)
            } else {
                (*dice.pick(&keys)).clone()
            }
        };
        match dice.whole(0, if is_writable { 17 } else { 7 }) {
            0..=4 => {
                let key = present(dice);
                let len = held.get(&key).map_or(1000, |content| content.len as u64);
                Operation::Read { ranges: ranges(dice, len), key }
            }
            5 => Operation::Get { key: present(dice) },
            6 => Operation::Stat { key: present(dice) },
            7 => Operation::Exists { key: present(dice) },
            8 | 9 => Operation::List { directory: dice.pick::<&str>(&["d", "d/sub", "e", "none"]) },
            10 | 11 => Operation::Glob {
                pattern: dice.pick::<&str>(&["**", "d/*", "*/*.parquet", "e/*b*"]),
            },
            12 => {
                // More than a part: S3 takes none below 5 MiB.
                let content = Content::new(dice.whole(0, 1 << 30), dice.whole(5 << 20, 11 << 20));
                Operation::Write { key: key(dice), content, piece: 1 << 20 }
            }
            13 => {
                let content = Content::new(dice.whole(0, 1 << 30), dice.between(1, 1 << 20) - 1);
                Operation::Write { key: key(dice), content, piece: 1 + content.len / 3 }
            }
            14 => {
                let content = Content::new(dice.whole(0, 1 << 30), dice.between(1, 100_000));
                Operation::Put { key: key(dice), content, only_if_absent: dice.chance(0.5) }
            }
            15 => Operation::Copy { from: present(dice), to: key(dice) },
            16 => Operation::Rename { from: present(dice), to: key(dice) },
            _ => Operation::Remove { keys: (0..dice.whole(1, 3)).map(|_| present(dice)).collect() },
        }
    }

    /// The size of the largest object that it reads; 0 where its answers are small.
    pub fn body_bytes(&self, held: &Held) -> usize {
        match self {
            Operation::Read { key, .. } | Operation::Get { key } => {
                held.get(key).map_or(0, |content| content.len)
            }
            _ => 0,
        }
    }

    pub fn answers(&self, is_web: bool) -> Answers {
        match self {
            Operation::Get { .. } => Answers::Whole,
            _ if is_web => Answers::Web,
            _ => Answers::Store,
        }
    }

    /// Does it and judges its answer; the error, if it ended in one.
    pub fn run(&self, world: &World, query: &Query) -> Option<Error> {
        let held = &world.held;
        match self {
            Operation::Read { key, ranges } => {
                let read = query.block_on(read(query, &world.at(key), ranges));
                judge_object(held, key, read, |content, pieces| {
                    for ((offset, len), piece) in ranges.iter().zip(pieces) {
                        let wanted = &content.bytes()[*offset as usize..(offset + len) as usize];
                        assert!(piece == wanted, "other bytes at {offset} of {key}");
                    }
                })
            }
            Operation::Get { key } => {
                let got = query.block_on(get(query, &world.at(key)));
                judge_object(held, key, got, |content, bytes| {
                    assert!(bytes == content.bytes(), "other bytes of {key}");
                })
            }
            Operation::Stat { key } => {
                let told = query.block_on(query.stat(&world.at(key)));
                judge_object(held, key, told, |content, meta| {
                    assert_eq!(meta.size_bytes, Some(content.len as u64), "size of {key}");
                })
            }
            Operation::Exists { key } => {
                let told = query.block_on(query.exists(&world.at(key)));
                told.map(|told| assert_eq!(told, held.contains_key(key), "{key}")).err()
            }
            Operation::List { directory } => {
                let listed = query.block_on(query.list(&world.at(directory)));
                let prefix = format!("{directory}/");
                judge_names(
                    listed,
                    below(held, |key| {
                        let rest = key.strip_prefix(&prefix)?;
                        Some(match rest.split_once('/') {
                            Some((folder, _)) => format!("{prefix}{folder}"),
                            None => key.to_string(),
                        })
                    }),
                )
            }
            Operation::Glob { pattern } => {
                let found = query.block_on(query.glob(&world.at(pattern)));
                let fits = |key: &str| penstock_engine::fits_pattern(pattern, key) == Some(true);
                judge_names(found, below(held, |key| fits(key).then(|| key.to_string())))
            }
            Operation::Write { key, content, piece } => {
                query.block_on(write(query, &world.at(key), content, *piece)).err()
            }
            Operation::Put { key, content, only_if_absent } => {
                let condition = match only_if_absent {
                    true => WriteCondition::IfAbsent,
                    false => WriteCondition::None,
                };
                let options = PutOptions { condition, ..PutOptions::default() };
                let payload = bytes::Bytes::from_static(content.bytes()).into();
                let placed = query.block_on(query.put(&world.at(key), payload, &options));
                let is_there = held.contains_key(key);
                match &placed {
                    Ok(_) => assert!(!only_if_absent || !is_there, "{key} was replaced"),
                    Err(error) if error.kind() == Kind::Conflict => {
                        assert!(*only_if_absent && is_there, "{error}");
                    }
                    Err(_) => {}
                }
                placed.err()
            }
            Operation::Copy { from, to } => {
                let (from, to) = (world.at(from), world.at(to));
                query.block_on(query.copy(&from, &to, PutOptions::default())).err()
            }
            Operation::Rename { from, to } => {
                query.block_on(query.rename(&world.at(from), &world.at(to))).err()
            }
            Operation::Remove { keys } => {
                let objects: Vec<Location> = keys.iter().map(|key| world.at(key)).collect();
                query.block_on(query.remove(&objects)).err()
            }
        }
    }

    /// What the store may hold afterwards under each key that this may change; `None` for nothing.
    ///
    /// Success leaves no choice. Neither does an error where each answer was heard: then nothing
    /// has changed. Else a request may have been carried out, or taken back, which does not bring
    /// back what was there before.
    pub fn allowed(
        &self,
        held: &Held,
        succeeded: bool,
        was_heard: bool,
    ) -> BTreeMap<String, Vec<Option<Content>>> {
        let now = |key: &String| held.get(key).copied();
        let placed = |key: &String, content: Option<Content>, gone_too: bool| {
            let states = match (succeeded, was_heard) {
                (true, _) => vec![content],
                (false, true) => vec![now(key)],
                (false, false) if gone_too => vec![now(key), content, None],
                (false, false) => vec![now(key), content],
            };
            (key.clone(), states)
        };
        match self {
            Operation::Write { key, content, .. } | Operation::Put { key, content, .. } => {
                BTreeMap::from([placed(key, Some(*content), true)])
            }
            Operation::Copy { from, to } => BTreeMap::from([placed(to, now(from), false)]),
            Operation::Rename { from, to } if from == to => BTreeMap::new(),
            // It has two halves, and the first may have succeeded where the second failed.
            Operation::Rename { from, to } => BTreeMap::from([
                if succeeded {
                    placed(to, now(from), false)
                } else {
                    (to.clone(), vec![now(to), now(from)])
                },
                if succeeded {
                    (from.clone(), vec![None])
                } else {
                    (from.clone(), vec![now(from), None])
                },
            ]),
            Operation::Remove { keys } => {
                let states = |key: &String| match succeeded {
                    true => vec![None],
                    // Some may have been removed.
                    false => vec![now(key), None],
                };
                keys.iter().map(|key| (key.clone(), states(key))).collect()
            }
            _ => BTreeMap::new(),
        }
    }
}

fn ranges(dice: &Dice, len: u64) -> Vec<(u64, u64)> {
    let range = |_| match dice.whole(0, 5) {
        0 => (0, len),
        1 => (len - len.min(dice.between(1, 70_000)), len.min(1)),
        _ => {
            let offset = dice.whole(0, len);
            (offset, dice.whole(0, len - offset))
        }
    };
    (0..dice.whole(1, 5)).map(range).collect()
}

async fn read(query: &Query, at: &Location, ranges: &[(u64, u64)]) -> Result<Vec<Vec<u8>>> {
    let reader = query.open(at, &Known::NOTHING).await?;
    let mut pieces = Vec::new();
    for (offset, len) in ranges {
        let mut piece = vec![0xA5; *len as usize];
        reader.read_at(query, &mut piece, *offset).await?;
        pieces.push(piece);
    }
    Ok(pieces)
}

async fn get(query: &Query, at: &Location) -> Result<Vec<u8>> {
    let mut stream = query.get(at, GetRequest::default()).await?;
    let (mut all, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        match stream.read(&mut piece).await? {
            0 => return Ok(all),
            count => all.extend_from_slice(&piece[..count]),
        }
    }
}

async fn write(query: &Query, at: &Location, content: &Content, piece: usize) -> Result<()> {
    let mut writer = query.create(at, PutOptions::default())?;
    for piece in content.bytes().chunks(piece) {
        writer.write(piece).await?;
    }
    writer.finish().await.map(drop)
}

/// An answer about an object: right where there is one, and `NotFound` where there is none. No
/// fault says that there is none.
fn judge_object<T>(
    held: &Held,
    key: &str,
    answer: Result<T>,
    check: impl Fn(&Content, T),
) -> Option<Error> {
    match (answer, held.get(key)) {
        (Ok(answer), Some(content)) => check(content, answer),
        (Ok(_), None) => panic!("{key} is not there, and was found"),
        (Err(error), Some(_)) => {
            assert_ne!(error.kind(), Kind::NotFound, "{key} is there: {error}");
            return Some(error);
        }
        (Err(error), None) => return Some(error),
    }
    None
}

/// Names with their sizes; `None` for a directory.
type Names = BTreeMap<String, Option<u64>>;

fn below(held: &Held, name: impl Fn(&str) -> Option<String>) -> Names {
    let named = |(key, content): (&String, &Content)| {
        let name = name(key)?;
        let size = (name == *key).then_some(content.len as u64);
        Some((name, size))
    };
    held.iter().filter_map(named).collect()
}

fn judge_names(answer: Result<Vec<penstock_engine::Entry>>, wanted: Names) -> Option<Error> {
    match answer {
        Ok(entries) => {
            let count = entries.len();
            let found: Names = entries
                .into_iter()
                .map(|entry| (entry.key, entry.meta.size_bytes.filter(|_| !entry.is_directory)))
                .collect();
            assert_eq!(found, wanted);
            assert_eq!(found.len(), count, "a name was told twice");
            None
        }
        Err(error) => Some(error),
    }
}
