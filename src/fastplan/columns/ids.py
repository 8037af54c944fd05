"""Ids as 16-byte keys: an id is opaque text, in columns it is the bytes of its UUID or a digest (docs/architecture.md, "Ids")."""

from fastplan.columns._ids import key_of, keys_of, new_keys, odd_texts_of, text_of, texts_of

__all__ = ["key_of", "keys_of", "new_keys", "odd_texts_of", "text_of", "texts_of"]
