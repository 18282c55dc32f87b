//! Requests to a console.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, COOKIE, HOST, ORIGIN, SET_COOKIE};
use hyper::{Method, Request, Response, StatusCode};
use keylane_connector::tls::Certificates;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::access::Access;
use super::address::Address;
use super::connection::{certificates, connect, misread, unanswered};
use super::error::ConsoleError;
use super::events::Events;
use super::token::Token;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

/// How long an answer may take. A console gives a store of letters 30 seconds.
const PATIENCE: Duration = Duration::from_secs(40);

/// How long the end of a session may take.
const SIGN_OUT: Duration = Duration::from_secs(2);

/// Most bytes of an answer.
const MOST_BYTES: usize = 64 << 20;

/// A console. It signs in when it must: a session ends with the service, and after twelve hours.
pub(crate) struct Console {
    address: Address,
    token: Option<Token>,
    certificates: Certificates,
    /// The session.
    cookie: Mutex<Option<String>>,
}

impl Console {
    /// Reads the files that it needs. It connects with its first request.
    pub(crate) fn open(address: Address, access: &Access) -> Result<Self, ConsoleError> {
        Ok(Self {
            token: Token::read(access.token_file.as_deref())?,
            certificates: certificates(&address, access.ca.as_deref())?,
            address,
            cookie: Mutex::default(),
        })
    }

    pub(crate) fn url(&self) -> String {
        self.address.url()
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ConsoleError> {
        self.answer(self.ask(Method::GET, path, &[], None).await?)
            .await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, ConsoleError> {
        self.answer(self.ask(Method::POST, path, &[], Some(body)).await?)
            .await
    }

    /// Opens a feed, behind the event with this id.
    pub(crate) async fn events(
        &self,
        path: &str,
        last_id: Option<&str>,
    ) -> Result<Events, ConsoleError> {
        let last_id = last_id.map(|id| ("last-event-id", id));
        let response = self
            .ask(Method::GET, path, last_id.as_slice(), None)
            .await?;
        let kind = response.headers().get(CONTENT_TYPE);
        if kind.is_none_or(|kind| !kind.as_bytes().starts_with(b"text/event-stream")) {
            return Err(self.no_console());
        }
        Ok(Events::new(self.url(), response.into_body()))
    }

    /// Asks; if there is no session, signs in and asks again. The status is a success.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Response<Incoming>, ConsoleError> {
        let asked = self.send(method.clone(), path, headers, body).await;
        match (&asked, &self.token) {
            (Err(ConsoleError::NoToken), Some(token)) => {
                self.sign_in(token).await?;
                self.send(method, path, headers, body).await
            }
            _ => asked,
        }
    }

    async fn sign_in(&self, token: &Token) -> Result<(), ConsoleError> {
        let body = json!({ "token": token.0 });
        let response = self.send(Method::POST, "session", &[], Some(&body)).await?;
        let cookie = response.headers().get(SET_COOKIE);
        let cookie = cookie.and_then(|cookie| cookie.to_str().ok());
        let cookie = cookie.and_then(|cookie| cookie.split(';').next());
        let cookie = cookie.ok_or_else(|| self.no_console())?.to_owned();
        *self.cookie.lock().unwrap_or_else(PoisonError::into_inner) = Some(cookie);
        Ok(())
    }

    /// Ends the session, if there is one. A console keeps few of them: one that stays would make
    /// that of another operator end. The program has its result already, so an error is nothing.
    pub(crate) async fn sign_out(&self) {
        if self.cookie().is_some() {
            let ending = self.send(Method::DELETE, "session", &[], None);
            let _ = timeout(SIGN_OUT, ending).await;
        }
    }

    fn cookie(&self) -> Option<String> {
        let cookie = self.cookie.lock();
        cookie.unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Response<Incoming>, ConsoleError> {
        let authority = &self.address.authority;
        let mut request = Request::builder()
            .method(method)
            .uri(self.address.path_of(path))
            .header(HOST, authority)
            .header(ORIGIN, self.address.origin())
            .header("x-keylane-console", "1");
        if let Some(cookie) = self.cookie() {
            request = request.header(COOKIE, cookie);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = match body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                Full::from(body.to_string())
            }
            None => Full::default(),
        };
        let request = request.body(body).map_err(|error| self.no_answer(&error))?;
        let response = self.sent(request).await?;
        match response.status().is_success() {
            true => Ok(response),
            false => Err(self.refused(response).await),
        }
    }

    async fn sent(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ConsoleError> {
        let connected = timeout(CONNECT, connect(&self.address, &self.certificates)).await;
        let mut sender = connected.map_err(|_| self.no_answer(&"it does not connect"))??;
        let response = timeout(PATIENCE, sender.send_request(request)).await;
        match response.map_err(|_| self.no_answer(&"it is silent"))? {
            Ok(response) => Ok(response),
            // What listens there may speak something else.
            Err(error) if error.is_parse() => Err(misread(&self.address).await),
            Err(error) => Err(unanswered(&self.address, &self.certificates, &error).await),
        }
    }

    async fn refused(&self, response: Response<Incoming>) -> ConsoleError {
        let status = response.status();
        match self.body(response).await {
            Ok(body) => match ConsoleError::of(&body) {
                // A page of another service may want a sign-in, too.
                Some(error) => error,
                None if status == StatusCode::SERVICE_UNAVAILABLE => self.no_answer(&status),
                None => self.no_console(),
            },
            Err(error) => error,
        }
    }

    async fn answer<T: DeserializeOwned>(
        &self,
        response: Response<Incoming>,
    ) -> Result<T, ConsoleError> {
        let body = self.body(response).await?;
        serde_json::from_slice(&body).map_err(|_| self.no_console())
    }

    async fn body(&self, response: Response<Incoming>) -> Result<Bytes, ConsoleError> {
        let body = Limited::new(response.into_body(), MOST_BYTES).collect();
        let body = timeout(PATIENCE, body).await;
        let body = body.map_err(|_| self.no_answer(&"the answer does not end"))?;
        match body {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) => Err(self.no_answer(&error)),
        }
    }

    fn no_answer(&self, why: &dyn std::fmt::Display) -> ConsoleError {
        ConsoleError::NoAnswer {
            url: self.url(),
            why: why.to_string(),
        }
    }

    fn no_console(&self) -> ConsoleError {
        ConsoleError::NoConsole { url: self.url() }
    }
}
