"""Text in and text out: tokenizer, chat template, and the stream that turns ids into text as they come."""

from foredraft.text.chat_template import ChatTemplate
from foredraft.text.stops import check_stops
from foredraft.text.stream import StreamUpdate, TextStream
from foredraft.text.tokenizer import Tokenizer

__all__ = ["ChatTemplate", "StreamUpdate", "TextStream", "Tokenizer", "check_stops"]
