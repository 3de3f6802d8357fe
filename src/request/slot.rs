//! What a value means, by the call and by where it stands.

use super::Api;
use super::json::Container;
use crate::config::ToolMode;

/// The three parts of a prompt, in the order in which engines read them. Calls without messages keep
/// their prompt in `Messages` and its form as token ids in `System`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Section {
    Tools,
    System,
    Messages,
}

/// What else decides whether two prompts share a prefix; the place in the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeedField {
    CacheSalt,
    /// What the server remembers: `previous_response_id`, `conversation`.
    Previous,
    /// A prompt or template that the body replaces or refers to.
    Template,
    Documents,
    Adapter,
    /// SGLang's media beside the prompt.
    Media,
}

impl SeedField {
    pub(super) const COUNT: usize = 6;
}

/// The meaning of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Root,
    /// Neither hashed nor counted.
    Skip,
    /// Read by the engine, not hashed.
    Counted,
    /// Written out token by token.
    Generic,
    Model,
    Stream,
    Seed(SeedField),
    Session,
    SessionObject,
    /// Tools in full.
    Tools,
    /// Tools not at all.
    ToolsCounted,
    /// Tools by identity.
    ToolSet,
    Tool,
    ToolFunction,
    System,
    Messages,
    Message,
    Role,
    Content,
    /// The content of an item that has no role.
    Output,
    Part,
    PartText,
    /// The parts of a part.
    Nested,
    /// The `type` of a part or item.
    Kind,
    /// A message's or part's value that enters by its hash.
    Field,
    /// The same, its bytes being no text.
    Media,
    Prompt,
    PromptIds,
    PromptItem,
    /// Token ids of the first prompt of a batch.
    Tokens,
    Token,
}

impl Slot {
    /// The meaning of a key of the body.
    pub(super) fn of_body(api: Api, tool_mode: ToolMode, key: &[u8]) -> Self {
        let tools = match tool_mode {
            ToolMode::Full => Self::Tools,
            ToolMode::Identity => Self::ToolSet,
            ToolMode::None => Self::ToolsCounted,
        };
        let chat = matches!(api, Api::Chat | Api::Messages);
        let text = matches!(api, Api::Completions | Api::Embeddings | Api::Generate);
        match key {
            b"model" => Self::Model,
            b"stream" => Self::Stream,
            b"cache_salt" | b"extra_key" => Self::Seed(SeedField::CacheSalt),
            b"chat_template" => Self::Seed(SeedField::Template),
            b"lora_path" => Self::Seed(SeedField::Adapter),
            b"prompt_cache_key" => Self::Session,
            b"session_params" => Self::SessionObject,
            b"messages" if chat || api == Api::Embeddings => Self::Messages,
            b"tools" | b"functions" if !text => tools,
            b"documents" if chat => Self::Seed(SeedField::Documents),
            b"system" if api == Api::Messages => Self::System,
            b"instructions" if api == Api::Responses => Self::System,
            b"input" if api == Api::Responses => Self::Messages,
            b"prompt" if api == Api::Responses => Self::Seed(SeedField::Template),
            b"previous_response_id" | b"conversation" if api == Api::Responses => {
                Self::Seed(SeedField::Previous)
            }
            b"prompt" if api == Api::Completions => Self::Prompt,
            b"prompt_token_ids" if api == Api::Completions => Self::PromptIds,
            b"input" if api == Api::Embeddings => Self::Prompt,
            b"text" if api == Api::Generate => Self::Prompt,
            b"input_ids" if api == Api::Generate => Self::PromptIds,
            b"image_data" | b"audio_data" | b"video_data" if api == Api::Generate => {
                Self::Seed(SeedField::Media)
            }
            _ => Self::Skip,
        }
    }

    /// The meaning of a key of a message or item.
    pub(super) fn of_message(api: Api, key: &[u8]) -> Self {
        match key {
            b"role" => Self::Role,
            b"content" => Self::Content,
            b"output" => Self::Output,
            b"type" if api == Api::Responses => Self::Kind,
            b"id" if api == Api::Responses => Self::Field,
            b"name" | b"tool_calls" | b"tool_call_id" | b"function_call" | b"reasoning_content"
            | b"reasoning" | b"refusal" | b"thinking" | b"thinking_blocks" | b"call_id"
            | b"arguments" | b"summary" | b"action" | b"input" | b"code" | b"queries"
            | b"results" => Self::Field,
            b"audio" | b"encrypted_content" | b"result" => Self::Media,
            _ => Self::Skip,
        }
    }

    /// The meaning of a key of a content part. What is unknown may be media: it is hashed.
    pub(super) fn of_part(key: &[u8]) -> Self {
        match key {
            b"type" => Self::Kind,
            b"text" => Self::PartText,
            b"content" => Self::Nested,
            b"cache_control" | b"annotations" | b"logprobs" | b"citations" => Self::Skip,
            b"id" | b"name" | b"input" | b"thinking" | b"tool_use_id" | b"is_error"
            | b"refusal" | b"title" | b"context" => Self::Field,
            _ => Self::Media,
        }
    }

    /// The meaning of a key of a tool of which only the identity counts.
    pub(super) fn of_tool(self, key: &[u8]) -> Self {
        match (self, key) {
            (_, b"name") | (Self::Tool, b"type") => Self::Field,
            (Self::Tool, b"function") => Self::ToolFunction,
            _ => Self::Counted,
        }
    }

    /// Whether the value's parts are written out as they are.
    pub(super) fn is_generic(self) -> bool {
        matches!(
            self,
            Self::Generic | Self::Tools | Self::Seed(_) | Self::Session | Self::Field | Self::Media
        )
    }

    /// The meaning of this value given that it is a `container`, and of an array's elements; `None` when
    /// the call does not allow it.
    pub(super) fn opened(self, container: Container) -> Option<(Self, Self)> {
        let pair = match (self, container) {
            (
                Self::Root | Self::Message | Self::Part | Self::Tool | Self::ToolFunction,
                Container::Object,
            )
            | (Self::SessionObject, Container::Object) => (self, Self::Skip),
            (Self::Skip | Self::Stream | Self::SessionObject, _) => (Self::Skip, Self::Skip),
            (Self::Counted | Self::Tool | Self::ToolFunction | Self::Token, _) => {
                (Self::Counted, Self::Counted)
            }
            (Self::ToolsCounted, _) => (self, Self::Counted),
            (Self::ToolSet, Container::Array) => (self, Self::Tool),
            (Self::Messages, Container::Array) => (self, Self::Message),
            (Self::Content | Self::Output | Self::Nested | Self::System, Container::Array) => {
                (self, Self::Part)
            }
            (Self::Prompt | Self::PromptIds, Container::Array) => (self, Self::PromptItem),
            (Self::PromptItem, Container::Array) => (Self::Tokens, Self::Token),
            (Self::PromptItem, Container::Object) => (Self::Generic, Self::Generic),
            (Self::Kind, _) => (Self::Field, Self::Generic),
            _ if self.is_generic() => (self, Self::Generic),
            _ => return None,
        };
        Some(pair)
    }
}
