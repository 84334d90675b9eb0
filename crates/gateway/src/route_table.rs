//! [`RouteTable`]: which route takes a request, by its host, method and path.

use http::{Method, Request};
use selfsame_core::headers::authority;

use crate::config::{Host, Route};
use crate::request_path::{Slashes, normal, readings};

/// Routes, with what is looked up for each.
pub(crate) struct RouteTable<T> {
    /// The closest host first.
    at_host: Vec<(Host, Paths<T>)>,
    anywhere: Paths<T>,
    slashes: Slashes,
}

struct Paths<T> {
    /// A router for each method, because `PUT /a` must not hide `POST /{*rest}` from a `POST /a`.
    taken: Vec<(Method, matchit::Router<T>)>,
    /// Where requests with other methods go; empty where all have the same upstream.
    passing: matchit::Router<T>,
}

impl<T> Default for Paths<T> {
    fn default() -> Self {
        Self { taken: Vec::new(), passing: matchit::Router::new() }
    }
}

/// A route with what is looked up for it.
pub(crate) struct Entry<'a, T> {
    pub(crate) route: &'a Route,
    pub(crate) taken: T,
    /// Found by requests to the route's path with a method that no route takes.
    pub(crate) passing: Option<T>,
}

impl<T: Clone> RouteTable<T> {
    /// Table of the routes of a configuration, which was checked for clashes.
    pub(crate) fn new(slashes: Slashes, entries: &[Entry<'_, T>]) -> Self {
        let mut table = Self { at_host: Vec::new(), anywhere: Paths::default(), slashes };
        for entry in entries {
            for method in &entry.route.settings.methods {
                let inserted =
                    table.router(entry, method).insert(&entry.route.pattern, entry.taken.clone());
                inserted.expect("the configuration was checked for clashes");
            }
            table.add_passing(entry, &entry.route.pattern);
        }
        for entry in entries {
            let Some(pattern) = slash_variant(&entry.route.pattern) else { continue };
            for method in &entry.route.settings.methods {
                // A route that is written so keeps its requests.
                let _written = table.router(entry, method).insert(&pattern, entry.taken.clone());
            }
            table.add_passing(entry, &pattern);
        }
        table.at_host.sort_by_key(|(host, _)| host.rank());
        table
    }

    fn router(&mut self, entry: &Entry<'_, T>, method: &Method) -> &mut matchit::Router<T> {
        self.at(entry.route.host.as_ref()).of(method)
    }

    fn add_passing(&mut self, entry: &Entry<'_, T>, pattern: &str) {
        if let Some(passing) = &entry.passing {
            // Another route of the same path leads to the same upstream: that was checked.
            let _known =
                self.at(entry.route.host.as_ref()).passing.insert(pattern, passing.clone());
        }
    }

    /// The route that takes this request.
    pub(crate) fn taker<B>(&self, request: &Request<B>) -> Option<&T> {
        self.find_by(request, Paths::taker)
    }

    /// The upstream that the request's path leads to. Only for what no route takes: a path that
    /// leads elsewhere never takes protection away.
    pub(crate) fn passing<B>(&self, request: &Request<B>) -> Option<&T> {
        self.find_by(request, Paths::passing)
    }

    /// Finds what `find` gives for the closest host, or else for any.
    fn find_by<'a, B>(
        &'a self,
        request: &Request<B>,
        find: impl Fn(&'a Paths<T>, &Method, &str) -> Option<&'a T>,
    ) -> Option<&'a T> {
        let written = request.uri().path();
        let path = normal(written, self.slashes);
        let find_at = |path: &str| {
            let at_host = || {
                let authority = authority(request.uri(), request.headers())?;
                let mut fitting = self.at_host.iter().filter(|(host, _)| host.fits(&authority));
                fitting.find_map(|(_, paths)| find(paths, request.method(), path))
            };
            let at_host = if self.at_host.is_empty() { None } else { at_host() };
            at_host.or_else(|| find(&self.anywhere, request.method(), path))
        };
        find_at(&path).or_else(|| {
            // Many servers decode before they route.
            readings(written).find_map(|reading| find_at(&normal(&reading, self.slashes)))
        })
    }

    fn at(&mut self, host: Option<&Host>) -> &mut Paths<T> {
        let Some(host) = host else { return &mut self.anywhere };
        let known = self.at_host.iter().position(|(found, _)| found == host);
        let at = known.unwrap_or_else(|| {
            self.at_host.push((host.clone(), Paths::default()));
            self.at_host.len() - 1
        });
        &mut self.at_host[at].1
    }
}

impl<T> Paths<T> {
    fn taker(&self, method: &Method, path: &str) -> Option<&T> {
        let (_, paths) = self.taken.iter().find(|(taken, _)| taken == method)?;
        Some(paths.at(path).ok()?.value)
    }

    fn passing(&self, _: &Method, path: &str) -> Option<&T> {
        Some(self.passing.at(path).ok()?.value)
    }

    fn of(&mut self, method: &Method) -> &mut matchit::Router<T> {
        let known = self.taken.iter().position(|(found, _)| found == method);
        let at = known.unwrap_or_else(|| {
            self.taken.push((method.clone(), matchit::Router::new()));
            self.taken.len() - 1
        });
        &mut self.taken[at].1
    }
}

/// Pattern with a slash more or less at its end: many servers take both for the same path.
fn slash_variant(pattern: &str) -> Option<String> {
    match pattern.strip_suffix('/') {
        Some("") => None,
        Some(shorter) => Some(shorter.to_owned()),
        None => {
            let is_rest = pattern.rsplit('/').next().is_some_and(|last| last.contains("{*"));
            (!is_rest).then(|| format!("{pattern}/"))
        }
    }
}
