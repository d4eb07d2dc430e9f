//! Tests of the program as a process: standard output, standard error and exit code.

#[cfg(test)]
mod dev;
#[cfg(test)]
mod program;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod results;
#[cfg(test)]
mod run;
#[cfg(test)]
mod test;
