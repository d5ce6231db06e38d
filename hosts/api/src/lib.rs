//! rollhook's wire types, shared by server and clients.
