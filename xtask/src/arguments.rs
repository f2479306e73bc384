//! Command line of this program: words, flags and options in any order, and nothing left over.

use anyhow::{Result, bail};

/// Words of the command line that are not taken yet.
pub struct Arguments(Vec<String>);

impl Arguments {
    /// Takes the command line without the program's name.
    pub fn new(words: impl IntoIterator<Item = String>) -> Arguments {
        Arguments(words.into_iter().collect())
    }

    /// Takes the first word that is not an option.
    pub fn word(&mut self) -> Option<String> {
        let is_word = self.0.first().is_some_and(|word| !word.starts_with('-'));
        is_word.then(|| self.0.remove(0))
    }

    /// Takes a flag. Returns true if it was given.
    pub fn flag(&mut self, name: &str) -> bool {
        let position = self.0.iter().position(|word| word == name);
        position.inspect(|&at| drop(self.0.remove(at))).is_some()
    }

    /// Takes an option with its value, written `--name VALUE` or `--name=VALUE`.
    pub fn option(&mut self, name: &str) -> Result<Option<String>> {
        let joined = format!("{name}=");
        let Some(at) = self.0.iter().position(|word| word == name || word.starts_with(&joined)) else {
            return Ok(None);
        };
        let word = self.0.remove(at);
        if let Some(value) = word.strip_prefix(&joined) {
            return Ok(Some(value.to_owned()));
        }
        if at >= self.0.len() {
            bail!("{name} needs a value");
        }
        Ok(Some(self.0.remove(at)))
    }

    /// Refuses all words that were not taken.
    pub fn finish(self) -> Result<()> {
        match self.0.first() {
            Some(word) => bail!("unknown argument '{word}'"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Arguments {
        Arguments::new(line.split(' ').map(str::to_owned))
    }

    #[test]
    fn options_are_accepted_in_any_order_and_leftovers_refused() {
        let mut all = arguments("bench --json=a.json nbd --quick --state /x");
        assert_eq!(all.word().as_deref(), Some("bench"));
        assert_eq!(all.option("--json").unwrap().as_deref(), Some("a.json"));
        assert_eq!(all.word().as_deref(), Some("nbd"));
        assert_eq!(all.option("--state").unwrap().as_deref(), Some("/x"));
        assert!(all.flag("--quick") && !all.flag("--quick"));
        assert!(all.finish().is_ok());
        assert!(arguments("--surprise").finish().is_err());
        assert!(arguments("--json").option("--json").is_err());
    }
}
