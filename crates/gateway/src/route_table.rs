//! [`RouteTable`]: which route takes a request, by its host, method and path.

use http::{Method, Request};
use selfsame_core::headers::authority;

use crate::config::{Host, Route, normal_path};

/// Routes, with what is looked up for each.
pub(crate) struct RouteTable<T> {
    /// The closest host first.
    at_host: Vec<(Host, Paths<T>)>,
    anywhere: Paths<T>,
}

struct Paths<T> {
    /// A router for each method, because `PUT /a` must not hide `POST /{*rest}` from a `POST /a`.
    taken: Vec<(Method, matchit::Router<T>)>,
    /// Where requests with other methods go; empty where all have the same upstream.
    passing: matchit::Router<T>,
}

impl<T> Default for RouteTable<T> {
    fn default() -> Self {
        Self { at_host: Vec::new(), anywhere: Paths::default() }
    }
}

impl<T> Default for Paths<T> {
    fn default() -> Self {
        Self { taken: Vec::new(), passing: matchit::Router::new() }
    }
}

impl<T: Clone> RouteTable<T> {
    /// Adds a route of a configuration, which was checked for clashes. Requests to its path with a
    /// method that no route takes find `passing`, if there is one.
    pub(crate) fn add(&mut self, route: &Route, taken: T, passing: Option<T>) {
        let paths = self.at(route.host.as_ref());
        for method in &route.settings.methods {
            let inserted = paths.of(method).insert(&route.pattern, taken.clone());
            inserted.expect("the configuration was checked for clashes");
        }
        if let Some(passing) = passing {
            // Another route of the same path leads to the same upstream: that was checked.
            let _known = paths.passing.insert(&route.pattern, passing);
        }
        self.at_host.sort_by_key(|(host, _)| host.rank());
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
        let path = normal_path(request.uri().path());
        let at_host = || {
            let authority = authority(request.uri(), request.headers())?;
            let mut fitting = self.at_host.iter().filter(|(host, _)| host.fits(&authority));
            fitting.find_map(|(_, paths)| find(paths, request.method(), &path))
        };
        let at_host = if self.at_host.is_empty() { None } else { at_host() };
        at_host.or_else(|| find(&self.anywhere, request.method(), &path))
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
