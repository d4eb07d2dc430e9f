//! Tests of real components in the real host, in one binary. `make guests` builds the components; a
//! missing one is a failure.

#[cfg(test)]
mod components;
#[cfg(test)]
mod go_guests;
#[cfg(test)]
mod jail;
#[cfg(test)]
mod js_guests;
#[cfg(test)]
mod language_probe;
#[cfg(test)]
mod older;
#[cfg(test)]
mod probes;
#[cfg(test)]
mod provider;
#[cfg(test)]
mod python_guests;
#[cfg(test)]
mod simcloud;
#[cfg(test)]
mod swap;
