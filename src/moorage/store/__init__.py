"""PostgreSQL: the only store. Statements are SQLAlchemy Core, compiled once, run on asyncpg."""
