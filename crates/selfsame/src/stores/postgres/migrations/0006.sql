-- Version 6: who resolved a held key, and why, for auditors.
alter table selfsame.audit
  add column by_whom text,
  add column reason  text;
