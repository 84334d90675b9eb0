//! The question what became of a key.

use serde_json::{Value, json};

use super::super::words;
use crate::config::RouteSettings;

pub(super) fn path_item(settings: &RouteSettings) -> Value {
    let moment = json!({ "type": ["string", "null"], "format": "date-time" });
    json!({ "get": {
        "summary": "What became of a key",
        "parameters": [
            {
                "name": words::header(&settings.key_headers[0]),
                "in": "header",
                "required": true,
                "schema": { "type": "string" },
            },
            {
                "name": "route",
                "in": "query",
                "required": true,
                "description": "The method and path of the request that the key was sent with.",
                "schema": { "type": "string" },
                "example": "POST /v1/charges",
            },
        ],
        "responses": {
            "200": {
                "description": "What became of it. A key of another caller is `unknown`.",
                "content": { "application/json": { "schema": {
                    "type": "object",
                    "required": ["state", "attempts", "first_seen", "expires_at"],
                    "properties": {
                        "state": { "enum": [
                            "unknown", "in_progress", "completed", "failed", "held", "expired",
                        ] },
                        "attempts": { "type": "integer", "minimum": 0 },
                        "first_seen": moment,
                        "expires_at": moment,
                        "original_status": { "type": "integer" },
                    },
                } } },
            },
            "400": { "description": "The request that is meant was not named, or its key is no key." },
            "401": { "$ref": "#/components/responses/MissingTenant" },
            "503": { "$ref": "#/components/responses/StoreUnavailable" },
        },
    } })
}
