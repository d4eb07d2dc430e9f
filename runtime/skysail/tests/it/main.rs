//! The program as people run it: a process, its two outputs and its exit code.

#[cfg(test)]
mod dev;
#[cfg(test)]
mod program;
#[cfg(test)]
mod results;
#[cfg(test)]
mod run;
